"""Containers of a pod, in the API's own order, which JSON texts of an injected pod keep.

Source: status-lifecycle.md sections 10.2, 11.9 and 11.10.
"""

from typing import Final

from agent.inject.api.types import (
    BOOLEAN,
    BOOLEAN_SET,
    DIVISOR,
    INTEGER,
    INTEGER_SET,
    NAME_AND_VALUE,
    PORT,
    QUANTITIES,
    TEXT,
    TEXT_SET,
    TEXTS,
    Items,
    Struct,
    Type,
    always,
    fields,
    texts,
)

EXEC: Final = Struct({"command": TEXTS})
HTTP_GET: Final = Struct(
    {
        "path": TEXT,
        "port": PORT,
        "host": TEXT,
        "scheme": TEXT,
        "httpHeaders": Items(NAME_AND_VALUE),
    }
)
TCP_SOCKET: Final = Struct({"port": PORT, "host": TEXT})
GRPC: Final = Struct({"port": INTEGER, "service": TEXT_SET})
SLEEP: Final = Struct({"seconds": INTEGER})
PROBE: Final = Struct(
    {
        "exec": EXEC,
        "httpGet": HTTP_GET,
        "tcpSocket": TCP_SOCKET,
        "grpc": GRPC,
        "initialDelaySeconds": INTEGER,
        "timeoutSeconds": INTEGER,
        "periodSeconds": INTEGER,
        "successThreshold": INTEGER,
        "failureThreshold": INTEGER,
        "terminationGracePeriodSeconds": INTEGER_SET,
    }
)
HOOK: Final = Struct({"exec": EXEC, "httpGet": HTTP_GET, "tcpSocket": TCP_SOCKET, "sleep": SLEEP})
LIFECYCLE: Final = Struct({"postStart": HOOK, "preStop": HOOK, "stopSignal": TEXT_SET})
CONTAINER_PORT: Final = Struct(
    {
        "name": TEXT,
        "hostPort": INTEGER,
        "containerPort": INTEGER,
        "protocol": TEXT,
        "hostIP": TEXT,
    }
)
KEY_SELECTOR: Final = Struct({"name": TEXT, "key": TEXT, "optional": BOOLEAN_SET})
FIELD_REF: Final = Struct(texts("apiVersion", "fieldPath"))
RESOURCE_FIELD_REF: Final = Struct({"containerName": TEXT, "resource": TEXT, "divisor": DIVISOR})
ENV: Final = Struct(
    {
        "name": TEXT,
        "value": TEXT,
        "valueFrom": Struct(
            {
                "fieldRef": FIELD_REF,
                "resourceFieldRef": RESOURCE_FIELD_REF,
                "configMapKeyRef": KEY_SELECTOR,
                "secretKeyRef": KEY_SELECTOR,
                "fileKeyRef": fields(texts("volumeName", "path", "key"), optional=BOOLEAN_SET),
            }
        ),
    }
)
ENV_SOURCE: Final = Struct({"name": TEXT, "optional": BOOLEAN_SET})
ENV_FROM: Final = Struct({"prefix": TEXT, "configMapRef": ENV_SOURCE, "secretRef": ENV_SOURCE})
RESOURCES: Final = Struct(
    {
        "limits": QUANTITIES,
        "requests": QUANTITIES,
        "claims": Items(Struct(texts("name", "request")), key="name"),
    }
)
VOLUME_MOUNT: Final = Struct(
    {
        "name": TEXT,
        "readOnly": BOOLEAN,
        "recursiveReadOnly": TEXT_SET,
        "mountPath": TEXT,
        "subPath": TEXT,
        "mountPropagation": TEXT_SET,
        "subPathExpr": TEXT,
    }
)
SELINUX: Final = Struct(texts("user", "role", "type", "level"))
WINDOWS: Final = Struct(
    {
        "gmsaCredentialSpecName": TEXT_SET,
        "gmsaCredentialSpec": TEXT_SET,
        "runAsUserName": TEXT_SET,
        "hostProcess": BOOLEAN_SET,
    }
)
PROFILE: Final = Struct({"type": TEXT, "localhostProfile": TEXT_SET})
SECURITY_CONTEXT: Final = Struct(
    {
        "capabilities": Struct({"add": TEXTS, "drop": TEXTS}),
        "privileged": BOOLEAN_SET,
        "seLinuxOptions": SELINUX,
        "windowsOptions": WINDOWS,
        "runAsUser": INTEGER_SET,
        "runAsGroup": INTEGER_SET,
        "runAsNonRoot": BOOLEAN_SET,
        "readOnlyRootFilesystem": BOOLEAN_SET,
        "allowPrivilegeEscalation": BOOLEAN_SET,
        "procMount": TEXT_SET,
        "seccompProfile": PROFILE,
        "appArmorProfile": PROFILE,
    }
)
RESTART_RULE: Final = fields(
    texts("action"),
    exitCodes=Struct({"operator": TEXT, "values": Items(INTEGER)}),
)
CONTAINER_FIELDS: Final[dict[str, Type]] = {
    "name": TEXT,
    "image": TEXT,
    "command": TEXTS,
    "args": TEXTS,
    "workingDir": TEXT,
    "ports": Items(CONTAINER_PORT, key="containerPort"),
    "envFrom": Items(ENV_FROM),
    "env": Items(ENV, key="name"),
    "resources": always(RESOURCES),
    "resizePolicy": Items(Struct(texts("resourceName", "restartPolicy"))),
    "restartPolicy": TEXT_SET,
    "restartPolicyRules": Items(RESTART_RULE),
    "volumeMounts": Items(VOLUME_MOUNT, key="mountPath"),
    "volumeDevices": Items(Struct(texts("name", "devicePath")), key="devicePath"),
    "livenessProbe": PROBE,
    "readinessProbe": PROBE,
    "startupProbe": PROBE,
    "lifecycle": LIFECYCLE,
    "terminationMessagePath": TEXT,
    "terminationMessagePolicy": TEXT,
    "imagePullPolicy": TEXT,
    "securityContext": SECURITY_CONTEXT,
    "stdin": BOOLEAN,
    "stdinOnce": BOOLEAN,
    "tty": BOOLEAN,
}
CONTAINER: Final = Struct(CONTAINER_FIELDS)
EPHEMERAL_CONTAINER: Final = fields(CONTAINER_FIELDS, targetContainerName=TEXT)
