"""Shell completion: the commands, and the flags that each one's help names.

Source: bootstrap.md section 1.1.
"""

from collections.abc import Iterable
from typing import Final

#: zsh has bash's way of completing, if asked for.
BEGINNINGS: Final = {
    "bash": "",
    "zsh": "#compdef agent pilot-agent\nautoload -U +X bashcompinit && bashcompinit\n",
}
FUNCTION: Final = r"""_mesh_agent() {
    local word=${COMP_WORDS[COMP_CWORD]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="@COMMANDS@"
    elif [ "${COMP_WORDS[1]}" = help ] && [ "$COMP_CWORD" -eq 2 ]; then
        words="@COMMANDS@"
    elif [ "${word#-}" != "$word" ]; then
        words=$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null |
            sed -n 's/^  [-a-zA-Z, ]\{4\}\(--[^ ]*\).*/\1/p')
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _mesh_agent agent pilot-agent
"""


def script(shell: str, commands: Iterable[str]) -> str:
    """Return what a shell is to source.

    Args:
        shell: 'bash' or 'zsh'.
        commands: their names.

    Raises:
        ValueError: another shell.
    """
    if shell not in BEGINNINGS:
        raise ValueError(f"completion {shell}".rstrip() + f": expected {' or '.join(BEGINNINGS)}")
    return BEGINNINGS[shell] + FUNCTION.replace("@COMMANDS@", " ".join(commands))
