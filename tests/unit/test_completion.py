import pytest

from agent.completion import script


def test_both_names_of_the_program_are_completed() -> None:
    assert script("bash", ["proxy", "wait"]).endswith(" agent pilot-agent\n")
    assert 'words="proxy wait"' in script("bash", ["proxy", "wait"])


def test_zsh_is_taught_bashs_way() -> None:
    assert script("zsh", ["proxy"]).endswith(script("bash", ["proxy"]))
    assert script("zsh", ["proxy"]).startswith("#compdef agent pilot-agent\n")


@pytest.mark.parametrize("shell", ["", "fish", "bash zsh"])
def test_any_other_shell_is_refused(shell: str) -> None:
    with pytest.raises(ValueError, match=rf"^completion ?{shell}: expected bash or zsh$"):
        script(shell, [])
