"""The page for whoever looks: by light and by dark, by keyboard, on little room, over time."""

import os
from pathlib import Path

import pytest

from agent.status.readiness import Shortfall
from tests.browser.telling import (
    NOW,
    certificate,
    certificates,
    documents,
    drain,
    looking_at_agent,
    parts,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]

#: WCAG 2.2, 1.4.3: of text to what is behind it.
CONTRAST = 4.5
#: Returns [ratio, text] of the text that is hardest to read; WCAG 2.2's relative luminance.
HARDEST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), walk.currentNode.data]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
})()"""
#: Says what has the focus, and whether that is to be seen.
FOCUSED = """(() => {
  const node = document.activeElement;
  if (node === document.body) return ["nothing", "none"];
  const name = node.getAttribute("aria-label") ?? node.textContent;
  return [name.trim(), getComputedStyle(node).outlineStyle];
})()"""
BUSY = parts(
    documents(),
    shortfall=Shortfall("dns", "the lookup table is not ready yet", ("a.b",)),
    details={"certificates": "secret default: the CA is silent"},
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_everything_can_be_read_by_light_and_by_dark(scheme: str, chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, telling):
        await look.tab.emulate(prefers_color_scheme=scheme)
        ground = await look.tab.evaluate("getComputedStyle(document.body).backgroundColor")
        hardest = [await look.tab.evaluate(HARDEST)]
        telling.say(parts(documents()))
        await look.again()
        await look.reads("#readiness", "✓ Ready")
        hardest.append(await look.tab.evaluate(HARDEST))

    assert [text for ratio, text in hardest if ratio < CONTRAST] == []
    assert ground == {"light": "rgb(244, 245, 247)", "dark": "rgb(18, 21, 24)"}[scheme]


@pytest.mark.parametrize("width", [1280, 1200, 1000, 640, 360])
async def test_it_fits_into_the_window_whatever_is_long(width: int, chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, _):
        await look.tab.emulate(width=width)
        wide = await look.tab.evaluate(
            "[...document.querySelectorAll('main *, header *')]"
            ".filter((node) => !node.closest('.scroll, pre, .unseen') && node.checkVisibility())"
            ".filter((node) => node.getBoundingClientRect().right > innerWidth)"
            ".map((node) => node.outerHTML)"
        )
        cut = await look.tab.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter((node) => node.scrollWidth > node.clientWidth)"
            ".map((node) => node.getAttribute('aria-label'))"
        )
        scrolled = await look.tab.evaluate("document.scrollingElement.scrollWidth")

    assert wide == []
    assert cut == []  # of the tables, which could be scrolled, but who would know
    assert scrolled == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
async def test_pictures_for_who_wants_to_see_it(
    scheme: str, width: int, tmp_path: Path, chromium: str
) -> None:
    """PAGE_PICTURES names a directory to leave them in."""
    trouble = parts(
        documents()
        | {"certs": certificates(certificate(ends=NOW - 60), problem="the CA is silent")},
        shortfall=Shortfall("envoy_config", "config not received from XDS server", ("a.b",)),
        details={"xds": "lds was refused: no filter chains specified"},
    )
    async with looking_at_agent(chromium, trouble) as (look, _):
        await look.tab.emulate(width=width, prefers_color_scheme=scheme)
        first = await look.tab.text("main > section:not([hidden])")
        top = await look.tab.evaluate(
            "document.querySelector('#readiness .reason').getBoundingClientRect().bottom"
        )
        picture = await look.tab.screenshot()

    directory = Path(os.environ.get("PAGE_PICTURES", tmp_path))
    (directory / f"page-{scheme}-{width}.png").write_bytes(picture)
    assert "✕ Not ready" in first
    assert top < 400  # of the window: the reason is there before anybody scrolls
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20]) == width


async def test_nothing_moves(chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, telling):
        await look.tab.emulate(prefers_reduced_motion="reduce")
        telling.say(parts(documents()))
        await look.again()
        await look.reads("#readiness", "✓ Ready")
        moving = await look.tab.evaluate("document.getAnimations().length")

    assert moving == 0


async def test_all_of_it_is_reached_by_keyboard_and_the_focus_is_seen(chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, _):
        order = []
        for _ in range(40):
            await look.tab.press("Tab", 9)
            name, outline = await look.tab.evaluate(FOCUSED)
            if name == "nothing":
                break
            assert outline == "solid", name
            order.append(name)

    assert order[0] == "Pause"
    wanted = [
        "Readiness as text",
        "Pushes by type",
        "Why Envoy refused lds",
        "Certificates as JSON",
    ]
    assert [name for name in order if name in wanted] == wanted
    assert order[-1] == "DNS table"
    assert any(name.startswith("Trust bundle: ") for name in order)


async def test_what_is_selected_focused_or_open_stays_so_while_time_goes_by(chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, telling):
        await look.tab.evaluate("""(() => {
            const reason = document.querySelector("pre");
            getSelection().selectAllChildren(reason);
            document.querySelector("summary").click();
            document.querySelector("summary").focus();
            document.querySelector("pre").isTheSame = true;
        })()""")
        assert isinstance(telling.answer, dict)
        telling.answer["time"] += 100
        telling.answer["activity"]["pushes"] += 5
        await look.again()
        await look.reads("#activity", "1,205")
        kept = await look.tab.evaluate("""[
            getSelection().toString().trim() === document.querySelector("pre").textContent.trim(),
            document.activeElement === document.querySelector("summary"),
            document.querySelector("details").open,
            document.querySelector("pre").isTheSame,
        ]""")

    assert kept == [True] * 4


async def test_a_pause_asks_nobody(chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, telling):
        await look.tab.press("Tab", 9)
        await look.tab.press(" ", 32, " ")
        await look.reads("#link", "paused at")
        questions = telling.questions
        pressed = await look.tab.evaluate("document.querySelector('#pause').ariaPressed")
        telling.say(parts(documents()))
        # Longer than until it would have asked again.
        await look.tab.evaluate("new Promise((done) => setTimeout(done, 2500))")
        assert telling.questions == questions
        await look.tab.press(" ", 32, " ")
        await look.reads("#readiness", "✓ Ready")
        await look.reads("#link", "live")

    assert pressed == "true"


async def test_what_has_changed_is_said_aloud_and_what_ticks_is_not(chromium: str) -> None:
    async with looking_at_agent(chromium, BUSY) as (look, telling):
        role = await look.tab.evaluate("document.querySelector('#said').role")
        before = await look.tab.text("#said")
        telling.say(parts(documents() | {"drain": drain("terminating", 3.0)}))
        await look.again()
        await look.reads("#drain", "Ending")
        after = await look.tab.text("#said")

    assert role == "status"
    assert (before, after) == ("Not ready: the lookup table is not ready yet", "Ready")
