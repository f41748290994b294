"""`python -m agent.xds.reflection`: a FileDescriptorSet of ADS on standard output.

In a process of its own: protobuf and Envoy's types have 60 MB.
"""

import sys

from envoy.service.discovery.v3 import ads_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor


def collect(file: FileDescriptor, found: dict[str, bytes]) -> None:
    """Add a file and all that it needs."""
    if file.name not in found:
        found[file.name] = file.serialized_pb
        for needed in file.dependencies:
            collect(needed, found)


def main() -> None:
    """Write it."""
    found: dict[str, bytes] = {}
    collect(ads_pb2.DESCRIPTOR, found)
    files = [descriptor_pb2.FileDescriptorProto.FromString(raw) for raw in found.values()]
    sys.stdout.buffer.write(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


if __name__ == "__main__":
    main()
