"""What unshard-train --picture has drawn, as tests read it."""

import json
import re
from pathlib import Path


def data_of(folder: Path) -> dict:
    """What the page draws from."""
    page = (folder / "timeline.html").read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def outline_of(folder: Path) -> dict:
    """All of a picture that no clock decides, and no kind of ranks."""
    data = data_of(folder)
    trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
    ranks = []
    for rank in data["ranks"]:
        events = [[data["units"][unit] if unit >= 0 else "", kind, name, phase, nbytes]
                  for _, unit, kind, name, phase, nbytes, *_ in rank["events"]
                  if name != "temp"]  # processes have scratch memory for partial sums
        # A wait that took no time has no bar.
        bars = [[event["name"] for event in trace
                 if event["ph"] == "X" and event["pid"] == rank["rank"] and event["tid"] == lane
                 and not event["name"].startswith("wait ")]
                for lane in range(len(data["lanes"]))]
        ranks.append({"rank": rank["rank"], "events": events, "bars": bars})
    return {"title": data["title"], "units": data["units"], "ranks": ranks}
