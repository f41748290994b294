"""The settings of workload identity.

Source: xds-identity-dns.md sections 4 to 6 and 12; bootstrap.md section 2.3.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from agent.credentials.settings import (
    TokenSettings,
    is_loopback,
    parse_headers,
    parse_policy,
    parse_proxy,
)
from agent.identity.keys import MIN_RSA_BITS, KeySettings
from agent.reader import (
    Reader,
    parse_bool,
    parse_duration,
    parse_float,
    parse_host_port,
    parse_int,
    parse_text,
)

CITADEL: Final = "Citadel"
GKE: Final = "GkeWorkloadCertificate"
GOOGLE_DOMAIN: Final = "googleapis.com"
DEFAULT_SERVER_NAME: Final = "istiod.istio-system.svc"
PLAINTEXT_PORT: Final = ":15010"
HEADER_PREFIX: Final = "CA_HEADER_"
SOCKET_FILE: Final = "socket"
MAX_RSA_BITS: Final = 16384
#: In a pod other containers read what is written, and run as other users (C16).
POD_FILE_MODE: Final = 0o644
FILE_MODE: Final = 0o600
KEY_MODES: Final = ("0600", "0640", "0644")
NANOS: Final = 1_000_000_000
MAX_TTL_SECONDS: Final = 2**63 // NANOS  #: what a duration holds in the reference, 292 years
MIN_DEBOUNCE_SECONDS: Final = 0.001
MAX_DEBOUNCE_SECONDS: Final = 60.0


class Address(NamedTuple):
    """One address of the CA."""

    target: str  #: host:port, as configured
    server_name: str  #: SNI, and the name in its certificate
    tls: bool
    #: Whether the token may be sent there (D-18). AGENT_CA_PLAINTEXT_TOKEN.
    send_token: bool
    #: URL of an HTTP proxy in between; empty: none. HTTPS_PROXY, NO_PROXY.
    proxy: str = ""
    #: What TLS is restricted to; empty: nothing. COMPLIANCE_POLICY.
    policy: str = ""


class AuthoritySettings(NamedTuple):
    """How the CA is reached, and what is asked of it."""

    #: In the order of trying; CA_ADDR is a list for us.
    addresses: tuple[Address, ...]
    #: Sent with each call: clusterid, and one per CA_HEADER_*.
    metadata: tuple[tuple[str, str], ...] = ()
    #: A path, or SYSTEM. CA_ROOT_CA.
    root: str = ""
    #: PILOT_CERT_PROVIDER.
    root_provider: str = "istiod"
    #: Directory of a machine's own certificates. PROV_CERT.
    provisioned: str = ""
    token: TokenSettings = TokenSettings()
    #: SECRET_TTL.
    ttl_seconds: float = 86400.0
    #: ISTIO_META_CERT_SIGNER.
    signer: str = ""


class RotationSettings(NamedTuple):
    """When a certificate is renewed."""

    #: Share of the lifetime kept in reserve. SECRET_GRACE_PERIOD_RATIO.
    grace_ratio: float = 0.5
    #: Its largest random change. SECRET_GRACE_PERIOD_RATIO_JITTER.
    jitter_ratio: float = 0.01


class OutputSettings(NamedTuple):
    """Where key, chain and root are written for others. OUTPUT_CERTS."""

    directory: str
    mode: int = FILE_MODE  #: of chain and root
    #: The key is for its owner alone, unless told otherwise. AGENT_OUTPUT_KEY_MODE.
    key_mode: int = FILE_MODE


class KeyProvider(NamedTuple):
    """What does Envoy's private-key operations. ProxyConfig privateKeyProvider."""

    name: str  #: cryptomb or qat
    poll_seconds: int = 0
    poll_nanos: int = 0
    fallback: bool = False


class IdentitySettings(NamedTuple):
    """Who this workload is, and how it and others prove it."""

    key: KeySettings
    authority: AuthoritySettings
    trust_domain: str = "cluster.local"
    rotation: RotationSettings = RotationSettings()
    #: No CA is asked. FILE_MOUNTED_CERTS, CA_PROVIDER.
    file_mounted: bool = False
    #: Files are where GKE puts them. CA_PROVIDER=GkeWorkloadCertificate.
    gke: bool = False
    output: OutputSettings | None = None
    #: The socket where Envoy looks for its identity. WORKLOAD_IDENTITY_SOCKET_FILE.
    socket_file: str = SOCKET_FILE
    #: A changed file is read after this. FILE_DEBOUNCE_DURATION.
    debounce_seconds: float = 0.1
    #: Revoked certificates are told to Envoy. PILOT_ENABLE_CA_CRL.
    crl: bool = True
    key_provider: KeyProvider | None = None
    #: Trust bundles come over XDS. PROXY_CONFIG_XDS_AGENT.
    bundle_over_xds: bool = False
    #: Ask for a certificate before anybody needs it.
    warm_up: bool = True
    #: There is an Envoy to serve.
    envoy_enabled: bool = True


def parse_identity(
    read: Reader,
    *,
    discovery_address: str,
    token: TokenSettings = TokenSettings(),  # noqa: B008 - immutable
    key_provider: object = None,
    has_control_plane: bool = True,
    envoy_enabled: bool = True,
) -> IdentitySettings:
    """Return the branch of workload identity; unusable values are noted on the reader.

    Args:
        read: the environment.
        discovery_address: ProxyConfig discoveryAddress, host:port: the CA unless CA_ADDR is set.
        token: where the token comes from.
        key_provider: ProxyConfig privateKeyProvider, as JSON.
        has_control_plane: false with local resources: nobody is asked before Envoy needs it.
        envoy_enabled: whether there is an Envoy.
    """
    provider = read.take("CA_PROVIDER", parse_text, default=CITADEL)
    gke = provider == GKE
    file_mounted = read.take("FILE_MOUNTED_CERTS", parse_bool, default=False) or gke
    authority = _authority(read, discovery_address, used=has_control_plane and not file_mounted)
    authority = authority._replace(token=token)
    trust_domain = read.take("TRUST_DOMAIN", parse_text, default="cluster.local")
    _check_provider(read, provider, authority, used=not file_mounted)
    if file_mounted and authority.provisioned:
        which = f"CA_PROVIDER={GKE}" if gke else "FILE_MOUNTED_CERTS"
        read.errors.append(f"PROV_CERT and {which}: expected one of them, not both")
    return IdentitySettings(
        key=parse_key(read, trust_domain),
        authority=authority,
        trust_domain=trust_domain,
        rotation=RotationSettings(
            read.take("SECRET_GRACE_PERIOD_RATIO", parse_ratio, default=0.5),
            read.take("SECRET_GRACE_PERIOD_RATIO_JITTER", parse_ratio, default=0.01),
        ),
        file_mounted=file_mounted,
        gke=gke,
        output=_output(read),
        socket_file=_socket_file(read),
        debounce_seconds=read.take("FILE_DEBOUNCE_DURATION", parse_debounce, default=0.1),
        crl=read.take("PILOT_ENABLE_CA_CRL", parse_bool, default=True),
        key_provider=_key_provider(key_provider),
        bundle_over_xds=read.take("PROXY_CONFIG_XDS_AGENT", parse_bool, default=False),
        warm_up=has_control_plane,
        envoy_enabled=envoy_enabled,
    )


def parse_ratio(text: str) -> float:
    """Return a finite number; what is beyond 0 to 1 is cut off where it is used."""
    ratio = parse_float(text)
    if not math.isfinite(ratio):
        raise ValueError("expected a number between 0 and 1")
    return ratio


def parse_ttl(text: str) -> float:
    """Return a lifetime that a CA can be asked for, in whole seconds."""
    seconds = parse_duration(text)
    if not 1 <= seconds <= MAX_TTL_SECONDS:
        raise ValueError("expected a duration from 1s on")
    return seconds


def parse_key_mode(text: str) -> int:
    """Return the mode of a file with a private key."""
    if text.rjust(4, "0") not in KEY_MODES:
        raise ValueError(f"expected one of {', '.join(KEY_MODES)}")
    return int(text, 8)


def parse_debounce(text: str) -> float:
    """Return a delay that lets the rest of a change happen, and others do their work."""
    seconds = parse_duration(text)
    if not MIN_DEBOUNCE_SECONDS <= seconds <= MAX_DEBOUNCE_SECONDS:
        raise ValueError("expected a duration from 1ms to 1m")
    return seconds


def parse_key(read: Reader, trust_domain: str) -> KeySettings:
    """Return what key is made, and for whom."""
    algorithm = read.take("ECC_SIGNATURE_ALGORITHM", parse_text, default="")
    if algorithm not in ("", "ECDSA"):
        read.errors.append(
            f"ECC_SIGNATURE_ALGORITHM={algorithm!r}: expected 'ECDSA', or nothing for RSA"
        )
    bits = read.take("WORKLOAD_RSA_KEY_SIZE", parse_int, default=MIN_RSA_BITS)
    if not algorithm and not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
        read.errors.append(
            f"WORKLOAD_RSA_KEY_SIZE={bits}: expected {MIN_RSA_BITS} to {MAX_RSA_BITS}"
        )
    namespace = read.take("POD_NAMESPACE", parse_text, default="")
    account = read.take("SERVICE_ACCOUNT", parse_text, default="")
    return KeySettings(
        spiffe_id=f"spiffe://{trust_domain}/ns/{namespace}/sa/{account}",
        elliptic=bool(algorithm),
        p384=read.take("ECC_CURVE", parse_text, default="P256") == "P384",
        rsa_bits=bits,
        pkcs8=read.take("PKCS8_KEY", parse_bool, default=False),
    )


def _authority(read: Reader, discovery_address: str, *, used: bool) -> AuthoritySettings:
    configured = read.take("CA_ADDR", parse_text, default="")
    # The name configured for istiod is that of the CA only where the CA is istiod (6.2).
    name = "" if configured else read.take("ISTIOD_SAN", parse_text, default="")
    anywhere = read.take("AGENT_CA_PLAINTEXT_TOKEN", parse_bool, default=False)
    parts = (part.strip() for part in (configured or discovery_address).split(","))
    addresses = [_address(read, part, name, anywhere=anywhere) for part in parts if part]
    if configured and not addresses:
        read.errors.append(f"CA_ADDR={configured!r}: expected host:port, or nothing for istiod")
    for address in addresses if used and configured else ():
        try:
            parse_host_port(address.target)
        except ValueError as error:
            read.errors.append(
                f"CA_ADDR={address.target!r}: {error}, as {DEFAULT_SERVER_NAME}:15012"
            )
    return AuthoritySettings(
        addresses=tuple(addresses),
        metadata=(
            ("clusterid", read.take("ISTIO_META_CLUSTER_ID", parse_text, default="")),
            *parse_headers(read, HEADER_PREFIX),
        ),
        root=read.take("CA_ROOT_CA", parse_text, default=""),
        root_provider=read.take("PILOT_CERT_PROVIDER", parse_text, default="istiod"),
        provisioned=read.take("PROV_CERT", parse_text, default=""),
        ttl_seconds=read.take("SECRET_TTL", parse_ttl, default=86400.0),
        signer=read.take("ISTIO_META_CERT_SIGNER", parse_text, default=""),
    )


def _address(read: Reader, target: str, name: str, *, anywhere: bool) -> Address:
    host = target.rpartition(":")[0].strip("[]")
    tls = not target.endswith(PLAINTEXT_PORT)
    default = DEFAULT_SERVER_NAME if "localhost" in host else host
    send_token = tls or anywhere or is_loopback(host)
    proxy = parse_proxy(read, target)
    policy = read.take("COMPLIANCE_POLICY", parse_policy, default="")
    return Address(target, name or default, tls, send_token, proxy, policy)


def _check_provider(
    read: Reader, provider: str, authority: AuthoritySettings, *, used: bool
) -> None:
    if any(GOOGLE_DOMAIN in address.target for address in authority.addresses):
        provider = "GoogleCA"
    if used and provider != CITADEL:
        read.errors.append(
            f'CA provider "{provider}" not registered: expected {CITADEL}, or {GKE} for mounted '
            "certificates; any CA that speaks istiod's protocol is reached at CA_ADDR"
        )


def _output(read: Reader) -> OutputSettings | None:
    directory = read.take("OUTPUT_CERTS", parse_text, default="")
    in_pod = read.take("KUBERNETES_SERVICE_HOST", parse_text, default="")
    mode = POD_FILE_MODE if in_pod else FILE_MODE
    key_mode = read.take("AGENT_OUTPUT_KEY_MODE", parse_key_mode, default=FILE_MODE)
    return OutputSettings(directory, mode, key_mode) if directory else None


def _socket_file(read: Reader) -> str:
    name = read.take("WORKLOAD_IDENTITY_SOCKET_FILE", parse_text, default=SOCKET_FILE)
    if "/" in name or name in ("", ".", ".."):
        read.errors.append(
            f"WORKLOAD_IDENTITY_SOCKET_FILE={name!r}: expected a file name without a directory"
        )
    return name


def _key_provider(document: object) -> KeyProvider | None:
    """Return the provider that ProxyConfig names; the mesh's own check has judged its values."""
    if not isinstance(document, Mapping):
        return None
    for name in ("cryptomb", "qat"):
        options = document.get(name)
        if isinstance(options, Mapping):
            nanos = _nanoseconds(options.get("pollDelay"))
            return KeyProvider(
                name, *divmod(nanos, NANOS), fallback=options.get("fallback") is True
            )
    return None


def _nanoseconds(value: object) -> int:
    """Return a duration as protobuf's JSON has it, such as "0.02s"."""
    try:
        return round(float(str(value).removesuffix("s")) * NANOS)
    except ValueError:
        return 0
