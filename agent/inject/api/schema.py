"""The types of the Kubernetes API as far as workloads reach, by the API's own names.

A line is a type and its fields, in the order in which the API writes them, which JSON texts of an
injected pod keep; `types.py` says how to read one. A field that is missing here is dropped from
every object, so a new one of the API needs one word.

Source: Kubernetes' API reference; status-lifecycle.md sections 10.2, 11.9, 11.10 and 11.17.
"""

from typing import Final

from agent.inject.api.types import parse_types

TYPES: Final = parse_types("""
# Metadata, and what selects by it.
OwnerReference = apiVersion kind name uid controller:bool? blockOwnerDeletion:bool?
ObjectMeta = name generateName namespace selfLink uid resourceVersion generation:int
    creationTimestamp deletionTimestamp deletionGracePeriodSeconds:int? labels:{text}
    annotations:{text} ownerReferences:OwnerReference[uid] finalizers:text[] managedFields:any[]
Head = kind apiVersion metadata:ObjectMeta!
ListMeta = selfLink resourceVersion continue remainingItemCount:int?
LabelSelectorRequirement = key operator values:text[]
LabelSelector = matchLabels:{text} matchExpressions:LabelSelectorRequirement[]

# Containers.
NameValue = name value
ExecAction = command:text[]
HTTPGetAction = path port:port? host scheme httpHeaders:NameValue[]
TCPSocketAction = port:port? host
GRPCAction = port:int service?
SleepAction = seconds:int
Probe = |exec:ExecAction |httpGet:HTTPGetAction |tcpSocket:TCPSocketAction |grpc:GRPCAction
    initialDelaySeconds:int timeoutSeconds:int periodSeconds:int successThreshold:int
    failureThreshold:int terminationGracePeriodSeconds:int?
LifecycleHandler = |exec:ExecAction |httpGet:HTTPGetAction |tcpSocket:TCPSocketAction
    |sleep:SleepAction
Lifecycle = postStart:LifecycleHandler preStop:LifecycleHandler stopSignal?
ContainerPort = name hostPort:int containerPort:int protocol hostIP
ObjectFieldSelector = apiVersion fieldPath
ResourceFieldSelector = containerName resource divisor:quantity!
KeySelector = name key optional:bool?
FileKeySelector = volumeName path key optional:bool?
EnvVarSource = |fieldRef:ObjectFieldSelector |resourceFieldRef:ResourceFieldSelector
    |configMapKeyRef:KeySelector |secretKeyRef:KeySelector |fileKeyRef:FileKeySelector
EnvVar = name |value |valueFrom:EnvVarSource
EnvSource = name optional:bool?
EnvFromSource = prefix configMapRef:EnvSource secretRef:EnvSource
ResourceClaim = name request
ResourceRequirements = limits:{quantity} requests:{quantity} claims:ResourceClaim[name]
VolumeMount = name readOnly:bool recursiveReadOnly? mountPath subPath mountPropagation?
    subPathExpr
VolumeDevice = name devicePath
Capabilities = add:text[] drop:text[]
SELinuxOptions = user role type level
WindowsSecurityContextOptions = gmsaCredentialSpecName? gmsaCredentialSpec? runAsUserName?
    hostProcess:bool?
SecurityProfile = type localhostProfile?
SecurityContext = capabilities:Capabilities privileged:bool? seLinuxOptions:SELinuxOptions
    windowsOptions:WindowsSecurityContextOptions runAsUser:int? runAsGroup:int? runAsNonRoot:bool?
    readOnlyRootFilesystem:bool? allowPrivilegeEscalation:bool? procMount?
    seccompProfile:SecurityProfile appArmorProfile:SecurityProfile
RestartRuleOnExitCodes = operator values:int[]
ContainerRestartRule = action exitCodes:RestartRuleOnExitCodes
ContainerResizePolicy = resourceName restartPolicy
Container = name image command:text[] args:text[] workingDir ports:ContainerPort[containerPort]
    envFrom:EnvFromSource[] env:EnvVar[name] resources:ResourceRequirements!
    resizePolicy:ContainerResizePolicy[] restartPolicy? restartPolicyRules:ContainerRestartRule[]
    volumeMounts:VolumeMount[mountPath] volumeDevices:VolumeDevice[devicePath] livenessProbe:Probe
    readinessProbe:Probe startupProbe:Probe lifecycle:Lifecycle terminationMessagePath
    terminationMessagePolicy imagePullPolicy securityContext:SecurityContext stdin:bool
    stdinOnce:bool tty:bool
EphemeralContainer = +Container targetContainerName

# Volumes.
LocalObjectReference = name
SecretRef = name namespace
KeyToPath = key path mode:int?
DownwardAPIVolumeFile = path fieldRef:ObjectFieldSelector resourceFieldRef:ResourceFieldSelector
    mode:int?
SecretProjection = name items:KeyToPath[] optional:bool?
DownwardAPIProjection = items:DownwardAPIVolumeFile[]
ServiceAccountTokenProjection = audience expirationSeconds:int? path
ClusterTrustBundleProjection = name? signerName? labelSelector:LabelSelector optional:bool? path
PodCertificateProjection = signerName keyType maxExpirationSeconds:int? credentialBundlePath
    keyPath certificateChainPath userAnnotations:{text}
VolumeProjection = secret:SecretProjection downwardAPI:DownwardAPIProjection
    configMap:SecretProjection serviceAccountToken:ServiceAccountTokenProjection
    clusterTrustBundle:ClusterTrustBundleProjection podCertificate:PodCertificateProjection
VolumeResourceRequirements = limits:{quantity} requests:{quantity}
DataSource = apiGroup? kind name
DataSourceRef = apiGroup? kind name namespace?
PersistentVolumeClaimSpec = accessModes:text[] selector:LabelSelector
    resources:VolumeResourceRequirements! volumeName storageClassName? volumeMode?
    dataSource:DataSource dataSourceRef:DataSourceRef volumeAttributesClassName?
PersistentVolumeClaimStatus = phase accessModes:text[] capacity:{quantity}
PersistentVolumeClaim = +Head spec:PersistentVolumeClaimSpec! status:PersistentVolumeClaimStatus!
PersistentVolumeClaimTemplate = metadata:ObjectMeta! spec:PersistentVolumeClaimSpec!
HostPathVolumeSource = path type?
EmptyDirVolumeSource = medium sizeLimit:quantity?
GCEPersistentDiskVolumeSource = pdName fsType partition:int readOnly:bool
AWSElasticBlockStoreVolumeSource = volumeID fsType partition:int readOnly:bool
GitRepoVolumeSource = repository revision directory
SecretVolumeSource = secretName items:KeyToPath[] defaultMode:int? optional:bool?
NFSVolumeSource = server path readOnly:bool
ISCSIVolumeSource = targetPortal iqn lun:int iscsiInterface fsType readOnly:bool portals:text[]
    chapAuthDiscovery:bool chapAuthSession:bool secretRef:LocalObjectReference initiatorName?
GlusterfsVolumeSource = endpoints path readOnly:bool
PersistentVolumeClaimVolumeSource = claimName readOnly:bool
RBDVolumeSource = monitors:text[] image fsType pool user keyring secretRef:LocalObjectReference
    readOnly:bool
FlexVolumeSource = driver fsType secretRef:LocalObjectReference readOnly:bool options:{text}
CinderVolumeSource = volumeID fsType readOnly:bool secretRef:LocalObjectReference
CephFSVolumeSource = monitors:text[] path user secretFile secretRef:LocalObjectReference
    readOnly:bool
FlockerVolumeSource = datasetName datasetUUID
DownwardAPIVolumeSource = items:DownwardAPIVolumeFile[] defaultMode:int?
FCVolumeSource = targetWWNs:text[] lun:int? fsType readOnly:bool wwids:text[]
AzureFileVolumeSource = secretName shareName readOnly:bool
ConfigMapVolumeSource = name items:KeyToPath[] defaultMode:int? optional:bool?
VsphereVirtualDiskVolumeSource = volumePath fsType storagePolicyName storagePolicyID
QuobyteVolumeSource = registry volume readOnly:bool user group tenant
AzureDiskVolumeSource = diskName diskURI cachingMode? fsType? readOnly:bool? kind?
PhotonPersistentDiskVolumeSource = pdID fsType
ProjectedVolumeSource = sources:VolumeProjection[] defaultMode:int?
PortworxVolumeSource = volumeID fsType readOnly:bool
ScaleIOVolumeSource = gateway system secretRef:LocalObjectReference sslEnabled:bool
    protectionDomain storagePool storageMode volumeName fsType readOnly:bool
StorageOSVolumeSource = volumeName volumeNamespace fsType readOnly:bool
    secretRef:LocalObjectReference
CSIVolumeSource = driver readOnly:bool? fsType? volumeAttributes:{text}
    nodePublishSecretRef:LocalObjectReference
EphemeralVolumeSource = volumeClaimTemplate:PersistentVolumeClaimTemplate
ImageVolumeSource = reference pullPolicy
Volume = name |hostPath:HostPathVolumeSource |emptyDir:EmptyDirVolumeSource
    |gcePersistentDisk:GCEPersistentDiskVolumeSource
    |awsElasticBlockStore:AWSElasticBlockStoreVolumeSource |gitRepo:GitRepoVolumeSource
    |secret:SecretVolumeSource |nfs:NFSVolumeSource |iscsi:ISCSIVolumeSource
    |glusterfs:GlusterfsVolumeSource |persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    |rbd:RBDVolumeSource |flexVolume:FlexVolumeSource |cinder:CinderVolumeSource
    |cephfs:CephFSVolumeSource |flocker:FlockerVolumeSource |downwardAPI:DownwardAPIVolumeSource
    |fc:FCVolumeSource |azureFile:AzureFileVolumeSource |configMap:ConfigMapVolumeSource
    |vsphereVolume:VsphereVirtualDiskVolumeSource |quobyte:QuobyteVolumeSource
    |azureDisk:AzureDiskVolumeSource |photonPersistentDisk:PhotonPersistentDiskVolumeSource
    |projected:ProjectedVolumeSource |portworxVolume:PortworxVolumeSource
    |scaleIO:ScaleIOVolumeSource |storageos:StorageOSVolumeSource |csi:CSIVolumeSource
    |ephemeral:EphemeralVolumeSource |image:ImageVolumeSource

# Pods.
NodeSelectorTerm = matchExpressions:LabelSelectorRequirement[]
    matchFields:LabelSelectorRequirement[]
PodAffinityTerm = labelSelector:LabelSelector namespaces:text[] topologyKey
    namespaceSelector:LabelSelector matchLabelKeys:text[] mismatchLabelKeys:text[]
WeightedPodAffinityTerm = weight:int podAffinityTerm:PodAffinityTerm!
PodAffinity = requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm[]
    preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm[]
PreferredSchedulingTerm = weight:int preference:NodeSelectorTerm!
NodeSelector = nodeSelectorTerms:NodeSelectorTerm[]
NodeAffinity = requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
    preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm[]
Affinity = nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity
PodSecurityContext = seLinuxOptions:SELinuxOptions windowsOptions:WindowsSecurityContextOptions
    runAsUser:int? runAsGroup:int? runAsNonRoot:bool? supplementalGroups:int[]
    supplementalGroupsPolicy? fsGroup:int? sysctls:NameValue[] fsGroupChangePolicy?
    seccompProfile:SecurityProfile appArmorProfile:SecurityProfile seLinuxChangePolicy?
Toleration = key operator value effect tolerationSeconds:int?
TopologySpreadConstraint = maxSkew:int topologyKey whenUnsatisfiable labelSelector:LabelSelector
    minDomains:int? nodeAffinityPolicy? nodeTaintsPolicy? matchLabelKeys:text[]
PodDNSConfigOption = name value?
PodDNSConfig = nameservers:text[] searches:text[] options:PodDNSConfigOption[]
HostAlias = ip hostnames:text[]
PodReadinessGate = conditionType
PodResourceClaim = name source:any resourceClaimName? resourceClaimTemplateName?
WorkloadRef = name podGroup podGroupReplicaKey
PodSpec = volumes:Volume[name] initContainers:Container[name] containers:Container[name]!
    ephemeralContainers:EphemeralContainer[name] restartPolicy terminationGracePeriodSeconds:int?
    activeDeadlineSeconds:int? dnsPolicy nodeSelector:{text} serviceAccountName serviceAccount
    automountServiceAccountToken:bool? nodeName hostNetwork:bool hostPID:bool hostIPC:bool
    shareProcessNamespace:bool? securityContext:PodSecurityContext
    imagePullSecrets:LocalObjectReference[name] hostname subdomain affinity:Affinity schedulerName
    tolerations:Toleration[] hostAliases:HostAlias[ip] priorityClassName priority:int?
    dnsConfig:PodDNSConfig readinessGates:PodReadinessGate[] runtimeClassName?
    enableServiceLinks:bool? preemptionPolicy? overhead:{quantity}
    topologySpreadConstraints:TopologySpreadConstraint[topologyKey] setHostnameAsFQDN:bool?
    os:LocalObjectReference hostUsers:bool? schedulingGates:LocalObjectReference[name]
    resourceClaims:PodResourceClaim[name] resources:ResourceRequirements hostnameOverride?
    workloadRef:WorkloadRef
Status = ...
Pod = +Head spec:PodSpec! status:Status!
PodTemplateSpec = metadata:ObjectMeta! spec:PodSpec!

# Workloads. Status counters are always there.
RollingUpdate = partition:int? maxUnavailable:port? maxSurge:port?
UpdateStrategy = type rollingUpdate:RollingUpdate
Rollback = revision:int
DeploymentSpec = replicas:int? selector:LabelSelector template:PodTemplateSpec!
    strategy:UpdateStrategy! minReadySeconds:int revisionHistoryLimit:int? paused:bool
    rollbackTo:Rollback progressDeadlineSeconds:int?
Deployment = +Head spec:DeploymentSpec! status:Status!
ReplicaSetSpec = replicas:int? minReadySeconds:int selector:LabelSelector
    template:PodTemplateSpec!
ReplicaSetStatus = replicas:int! ...
ReplicaSet = +Head spec:ReplicaSetSpec! status:ReplicaSetStatus!
DaemonSetSpec = selector:LabelSelector template:PodTemplateSpec! updateStrategy:UpdateStrategy!
    minReadySeconds:int templateGeneration:int revisionHistoryLimit:int?
DaemonSetStatus = currentNumberScheduled:int! numberMisscheduled:int! desiredNumberScheduled:int!
    numberReady:int! ...
DaemonSet = +Head spec:DaemonSetSpec! status:DaemonSetStatus!
ClaimRetention = whenDeleted whenScaled
Ordinals = start:int
StatefulSetSpec = replicas:int? selector:LabelSelector template:PodTemplateSpec!
    volumeClaimTemplates:PersistentVolumeClaim[] serviceName podManagementPolicy
    updateStrategy:UpdateStrategy! revisionHistoryLimit:int? minReadySeconds:int
    persistentVolumeClaimRetentionPolicy:ClaimRetention ordinals:Ordinals
StatefulSetStatus = replicas:int! availableReplicas:int! ...
StatefulSet = +Head spec:StatefulSetSpec! status:StatefulSetStatus!
ReplicationControllerSpec = replicas:int? minReadySeconds:int selector:{text}
    template:PodTemplateSpec
ReplicationController = +Head spec:ReplicationControllerSpec! status:ReplicaSetStatus!
JobSpec = parallelism:int? completions:int? activeDeadlineSeconds:int? podFailurePolicy:any
    successPolicy:any backoffLimit:int? backoffLimitPerIndex:int? maxFailedIndexes:int?
    selector:LabelSelector manualSelector:bool? template:PodTemplateSpec!
    ttlSecondsAfterFinished:int? completionMode? suspend:bool? podReplacementPolicy? managedBy?
Job = +Head spec:JobSpec! status:Status!
JobTemplate = metadata:ObjectMeta! spec:JobSpec!
CronJobSpec = schedule timeZone? startingDeadlineSeconds:int? concurrencyPolicy suspend:bool?
    jobTemplate:JobTemplate! successfulJobsHistoryLimit:int? failedJobsHistoryLimit:int?
CronJob = +Head spec:CronJobSpec! status:Status!
DeploymentConfigStrategy = resources:Status! ...
DeploymentConfigSpec = strategy:DeploymentConfigStrategy! test:bool! template:PodTemplateSpec ...
DeploymentConfigStatus = latestVersion:int! observedGeneration:int! replicas:int!
    updatedReplicas:int! availableReplicas:int! unavailableReplicas:int! ...
DeploymentConfig = +Head spec:DeploymentConfigSpec! status:DeploymentConfigStatus!
List = kind apiVersion metadata:ListMeta! items:any[]!
""")
CONTAINER: Final = TYPES["Container"]
POD: Final = TYPES["Pod"]
TEMPLATE: Final = TYPES["PodTemplateSpec"]
LIST: Final = TYPES["List"]
