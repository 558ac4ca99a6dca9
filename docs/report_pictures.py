"""Takes the pictures of the page on reports: a run of DMRG within a budget, as a screen and as a phone show it.

They are taken in Chromium, which `make test-browser` drives too. `make report-pictures` runs this.
"""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from selenium import webdriver

import unspool as us
from unspool.networks.chain import random_mps
from unspool.networks.dmrg import dmrg
from unspool.networks.models import heisenberg

IMAGES = Path(__file__).resolve().parent / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")

# What a screen shows of it, from its beginning; and the parts that are beside each other on phones.
SCREEN, PHONE = (1400, 1330), (360, 720)
PARTS = ("h1", "#about-memory", "#about-spectra")


def write_report(path: Path) -> None:
    """Run the loop and its gradient within 24 MB, and write the report."""
    J = us.tensor(np.ones(19), name="J")
    with us.memory("24MB") as m:
        found = dmrg(heisenberg(J), random_mps(20, 2, 2, seed=0), rank=32, tol=1e-10)
        found.energy.grad(J).eval()
        us.report(found.energy, path, wrt=J, memory=m, title="DMRG: 20 spins within 24 MB")


def browser(folder: str) -> Any:
    """Return a browser without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for flag in (*FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def show(driver: Any, page: Path, size: tuple[int, int], *, dark: bool) -> None:
    """Open a page as a device of some size does."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    driver.get(page.as_uri())


def taken(driver: Any, size: tuple[int, int], top: float = 0.0) -> Image.Image:
    """Return what a device shows of a page from some place on."""
    clip = {"x": 0, "y": top, "width": size[0], "height": size[1], "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"])))


def main() -> None:
    """Take both pictures."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "run.html"
        write_report(page)
        driver = browser(folder)
        try:
            show(driver, page, SCREEN, dark=False)
            whole = taken(driver, SCREEN).resize((1100, 1045), Image.Resampling.LANCZOS)
            whole.save(IMAGES / "report.png", optimize=True)
            show(driver, page, PHONE, dark=True)
            beside = Image.new("RGB", (len(PARTS) * (PHONE[0] + 20) - 20, PHONE[1]), "gray")
            for place, part in enumerate(PARTS):
                script = "return document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY"
                top = 0.0 if not place else driver.execute_script(script, part) - 10
                beside.paste(taken(driver, PHONE, top), (place * (PHONE[0] + 20), 0))
            beside.save(IMAGES / "report-phone.png", optimize=True)
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
