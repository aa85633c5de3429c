"""The page in a real browser, where there is one."""

import json
import re
import shutil
import subprocess

import pytest

from kerasmgpu.report import page, run_files
from tests.report import samples
from tests.report.test_page import NOW

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))),
    None,
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
]

# Opens all that is closed, points into the first plot, and tells what is so.
PROBE = """
<script>
for (const one of document.querySelectorAll("details")) one.open = true;
const canvas = document.querySelector(".canvas"), box = canvas.getBoundingClientRect();
canvas.dispatchEvent(new PointerEvent(
    "pointermove", {clientX: box.right, clientY: box.top + 5, bubbles: true}));
const tip = document.querySelector(".tip").getBoundingClientRect();
const cut = [...document.querySelectorAll(".canvas > span, dd, h1, h2, figcaption")]
  .filter((e) => { const b = e.getBoundingClientRect();
                   return b.left < 0 || b.right > innerWidth; })
  .map((e) => e.textContent);
const luminance = (color) => {
  const [r, g, b] = color.match(/[\\d.]+/g).map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = luminance(getComputedStyle(document.body).backgroundColor);
const texts = "p, small, dt, dd, th, td, a, summary, span";
const contrasts = [...document.querySelectorAll(texts)]
  .map((e) => luminance(getComputedStyle(e).color))
  .map((l) => (Math.max(l, background) + 0.05) / (Math.min(l, background) + 0.05));
parent.postMessage({
  width: innerWidth,
  scrolls: document.documentElement.scrollWidth,
  requests: performance.getEntriesByType("resource").length,
  tip: document.querySelector(".tip").innerText,
  tipFits: tip.left >= 0 && tip.right <= innerWidth,
  cut, contrast: Math.min(...contrasts),
}, "*");
</script>
"""

# A frame may be narrower than the least window of a browser.
FRAME = """
<!doctype html><link rel="icon" href="data:,">
<script>onmessage = (event) => {
  document.documentElement.dataset.probe = JSON.stringify(event.data);
}</script>
<iframe src="page.html" width="WIDTH" height="900" style="border: 0"></iframe>
"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wrong_in_a_browser(tmp_path, width, dark):
    runs = [
        samples.complete(tmp_path / "a_run_with_a_long_name_of_its_own", 1),
        samples.complete(tmp_path / "two", 2, offset=0.5),
        samples.complete(tmp_path / "four", 4, 2, offset=1e-5),
    ]
    text = page.render(run_files.read(runs), NOW)
    path = tmp_path / "frame.html"
    path.write_text(FRAME.replace("WIDTH", str(width)), "utf-8")
    probed = text.replace("</body>", f"{PROBE}</body>")
    path.with_name("page.html").write_text(probed, "utf-8")
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            "--window-size=1400,1000",
            "--virtual-time-budget=2000",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr
    probe = re.search(r'data-probe="([^"]*)"', done.stdout)[1]
    found = json.loads(probe.replace("&quot;", '"'))
    assert found["width"] == width
    assert found["scrolls"] <= width
    assert found["requests"] == 0
    assert "epoch: 12" in found["tip"]
    assert "0.1667" in found["tip"]
    assert found["tipFits"]
    assert found["cut"] == []
    assert found["contrast"] >= 4.5
