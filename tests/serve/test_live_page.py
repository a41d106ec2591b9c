"""The page as a person meets it, in a real browser: paste, watch, stop, in light and dark, with hostile text."""

from __future__ import annotations

from pathlib import Path

import pytest

CONTRAST = (Path(__file__).parent.parent / "report" / "contrast.js").read_text()
SOLUTION = "Step 1: There are 24 pupils.\nStep 2: 24 * 5 = 110, so they pay 110.\nStep 3: The answer is \\boxed{110}."
HOSTILE = (
    '<b>bold</b><img src=x onerror="window.hacked=1"><svg onload="window.hacked=1">\n\n'
    "</script><script>window.hacked=1</script>\n\n"
    "{{ 7*7 }} ${window.hacked=1} 1 + 1 = 3 \U0001d4b3 שלום עולם"
)


def css(browser, selector):
    from selenium.webdriver.common.by import By

    return browser.find_elements(By.CSS_SELECTOR, selector)


def wait(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30, poll_frequency=0.02).until(
        lambda driver: driver.execute_script(f"return {script}")
    )


def paste(browser, **fields: str) -> None:
    for name, text in fields.items():
        browser.execute_script("document.getElementById(arguments[0]).value = arguments[1]", name, text)


def judge(browser, **fields: str) -> None:
    paste(browser, **fields)
    css(browser, "#judge")[0].click()


STATUS = "document.getElementById('status').textContent"


def test_a_pasted_solution_is_judged_step_by_step(browser, service):
    browser.get(service.url)
    assert not css(browser, "#verdicts")[0].is_displayed()
    judge(browser, problem="24 pupils pay 5 dollars each. How much?", solution=SOLUTION, answer="120")
    wait(browser, f"{STATUS}.startsWith('Done')")
    assert css(browser, "#status")[0].text == "Done: the first error is step 1."
    steps = css(browser, "#steps > li")
    assert [step.find_element("css selector", ".badge").text for step in steps] == ["correct", "incorrect", "correct"]
    assert "▲ first error found" in steps[1].text
    assert "24 * 5" in steps[1].text  # the critique and its code are open where the error is
    whole = css(browser, "#whole")[0].text
    assert "first error: step 1" in whole
    assert "final answer 110: wrong" in whole


def test_steps_appear_while_later_ones_are_still_judged_and_stop_ends_the_work(browser, start):
    slow = start("scripted.latency_seconds=0.25", "verify.protocol=genprm", "sandbox.kind=off")
    browser.get(slow.url)
    judge(browser, problem="p", solution="\n".join(f"Step {n}: {n} + 1 = {n + 1}." for n in range(1, 9)))
    wait(browser, "document.querySelectorAll('.step.waiting').length === 8")
    wait(browser, "document.querySelectorAll('.step:not(.waiting)').length >= 1")
    assert css(browser, ".step.waiting")
    assert "of 8 judged" in css(browser, "#status")[0].text
    css(browser, "#stop")[0].click()
    wait(browser, f"{STATUS} === 'Stopped.'")
    slow.until(lambda: slow.waiting()["in_flight"] == 0)
    assert css(browser, "#judge")[0].get_attribute("aria-disabled") == "false"


def test_hostile_text_is_shown_as_text(browser, service):
    browser.get(service.url)
    judge(browser, problem=HOSTILE, solution=HOSTILE, answer="<i>3</i>")
    wait(browser, f"{STATUS}.startsWith('Done')")
    for summary in css(browser, "#verdicts details:not([open]) > summary"):
        browser.execute_script("arguments[0].click()", summary)
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.querySelectorAll('main img, main svg, main b, main i').length") == 0
    texts = [found.text for found in css(browser, "#steps > li > .text")]
    assert [text.strip() for text in texts] == [part.strip() for part in HOSTILE.split("\n\n")]


def test_the_form_is_worked_by_keyboard_and_says_what_is_missing(browser, service):
    from selenium.webdriver.common.keys import Keys

    browser.get(service.url)
    visited = []
    for _ in range(10):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        focused = browser.switch_to.active_element
        assert browser.execute_script("return arguments[0].matches(':focus-visible')", focused)
        visited.append(focused.get_attribute("id") or focused.text)
        if visited[-1] == "stop":
            break
    assert visited == [
        *("Skip to the verdicts", "theme", "for programs", "problem", "solution", "answer", "judge", "stop"),
    ]
    css(browser, "#judge")[0].send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "problem"
    assert css(browser, "#trouble")[0].text == "The problem is empty."
    browser.switch_to.active_element.send_keys("1 + 1?", Keys.TAB)
    browser.switch_to.active_element.send_keys("1 + 1 = 2", Keys.CONTROL, Keys.ENTER)
    wait(browser, f"{STATUS} === 'Done: no error found.'")
    assert not css(browser, "#trouble")[0].is_displayed()


def test_every_control_has_a_name(browser, service):
    browser.get(service.url)
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('input, textarea, button, a')].filter((node) =>"
        " !(node.labels?.length || node.textContent.trim())).map((node) => node.outerHTML)"
    )
    assert unnamed == []
    assert css(browser, "#status")[0].get_attribute("role") == "status"
    assert css(browser, "#trouble")[0].get_attribute("role") == "alert"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/docs"])
def test_all_text_is_legible(browser, service, scheme, path):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get(service.url + path)
    if path == "/":
        judge(browser, problem="p", solution=SOLUTION)
        wait(browser, f"{STATUS}.startsWith('Done')")
    assert browser.execute_script(CONTRAST) == []


@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_wider_than_the_window(browser, service, width):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    try:
        browser.get(service.url)
        judge(browser, problem="word" * 100, solution=SOLUTION + "long" * 300)
        wait(browser, f"{STATUS}.startsWith('Done')")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        browser.get(service.url + "/docs")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_theme_can_be_chosen_and_is_kept(browser, service):
    browser.get(service.url)
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    css(browser, "#theme")[0].click()
    browser.get(service.url)
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
    css(browser, "#theme")[0].click()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == before


def test_where_a_token_is_needed_the_page_asks_for_it_and_says_what_went_wrong(browser, start):
    locked = start("sandbox.kind=off", key="open sesame")
    browser.get(locked.url)
    judge(browser, problem="p", solution="1 + 1 = 2", token="wrong")
    wait(browser, f"{STATUS} === 'Ended.'")
    assert css(browser, "#trouble")[0].text.startswith("unauthorized: ")
    complaints = [entry["message"] for entry in browser.get_log("browser")]
    assert all("401" in complaint for complaint in complaints)  # Chromium's own line for a refused request
    judge(browser, token="open sesame")
    wait(browser, f"{STATUS} === 'Done: no error found.'")
