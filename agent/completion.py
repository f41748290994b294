"""Shell completion: the commands, the words that some begin with, the flags that help names.

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
    elif [ "${word#-}" != "$word" ]; then
        words=$("${COMP_WORDS[0]}" "${COMP_WORDS[1]}" --help 2>/dev/null |
            sed -n 's/^  [-a-zA-Z, ]\{4\}\(--[^ ]*\).*/\1/p')
    elif [ "$COMP_CWORD" -eq 2 ]; then
        case ${COMP_WORDS[1]} in
            help) words="@COMMANDS@" ;;
            xds) words="get status watch" ;;
            dns) words=lookup ;;
            completion) words="@SHELLS@" ;;
        esac
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
    function = FUNCTION.replace("@COMMANDS@", " ".join(commands))
    return BEGINNINGS[shell] + function.replace("@SHELLS@", " ".join(BEGINNINGS))
