"""`python -m agent.xds.local`: resource files on standard input, resources on standard output.

Both are delta responses: a file is a resource without type, named as the file. See process.py.
"""

import sys

from agent.xds.discovery import Kind, read_resources, write_response
from agent.xds.local.convert import FileError, convert
from agent.xds.local.process import BAD_DATA


def main() -> int:
    """Convert; return BAD_DATA, and say why, if a file is at fault."""
    _, files = read_resources(sys.stdin.buffer.read())
    try:
        version, resources = convert({file.name: file.body for file in files})
    except FileError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_DATA
    output = write_response(Kind.DELTA, "", version=version, nonce="", resources=resources)
    sys.stdout.buffer.write(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
