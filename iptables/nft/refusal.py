"""What to tell the user when nft refuses its input.

Source: traffic-capture.md sections 6.6 and 11.3.
"""

import re
from typing import Final

#: Kernel modules by the words of a line that need them.
MODULES: Final = {
    "type nat": "nft_chain_nat",
    "redirect to": "nft_redir",
    "tproxy": "nft_tproxy",
    " ct ": "nft_ct",
}
#: What the kernel answers where it lacks a part, and not where the input is wrong.
LACKING: Final = ("No such file or directory", "not supported")
ERROR: Final = re.compile(r"^\S*?:(?P<line>\d+):\d+-\d+: Error: (?P<reason>.*)$", re.MULTILINE)


def refusal(status: int, stderr: str, text: str) -> str:
    """Return one line: what nft refused, its reason, the modules and the table if one may lack.

    Args:
        status: nft's exit status, negative if a signal ended it.
        stderr: what it said.
        text: what it was given.
    """
    found = ERROR.search(stderr)
    lines = text.splitlines()
    if not found or int(found["line"]) > len(lines):
        said = "; ".join(line.strip() for line in stderr.splitlines() if line.strip())
        return f"nftables run failed: nft: exit status {status}" + (f": {said}" if said else "")
    line, reason = lines[int(found["line"]) - 1], found["reason"]
    hint = _hint(line) if any(words in reason for words in LACKING) else ""
    return f"nftables run failed: nft refused '{line}': {reason}{hint}"


def _hint(line: str) -> str:
    modules = ["nf_tables", *(module for words, module in MODULES.items() if words in line)]
    table = re.search(r"inet (\S+)", line)
    where = f"table {table[1]}" if table else "it"
    return f" ({where} needs the kernel modules {', '.join(modules)})"
