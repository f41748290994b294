"""The file that Envoy merges over its bootstrap. Source: bootstrap.md section 5.10."""

import json
from typing import Final

from bootstrap.document import parse_yaml

HOST_IP: Final = "$(HOST_IP)"


def override_json(text: str, host_ip: str) -> str:
    """Return the override as compact JSON, for Envoy's --config-yaml.

    Args:
        text: the file's, in YAML: documented overrides are fragments without braces.
        host_ip: replaces `$(HOST_IP)`, an IPv6 address in brackets but never in two pairs.

    Raises:
        ValueError: it is unusable; Envoy then starts without it.
    """
    shown = f"[{host_ip}]" if ":" in host_ip else host_ip
    bracketed = shown if ":" in host_ip else f"[{host_ip}]"
    text = text.replace(f"[{HOST_IP}]", bracketed).replace(HOST_IP, shown)
    parsed = parse_yaml(text)
    if not isinstance(parsed, dict):
        raise ValueError("expected a mapping")  # noqa: TRY004 - one error for all bad text
    try:
        return json.dumps(parsed, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("expected values that JSON can hold") from None
