"""A Prometheus of Debian's package, which is fetched and unpacked, not installed: the package would start a service."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import packages
import tap
from local import ports

SCRAPE_SECONDS = 0.5


def fetch(place):
    """The folder with its programs, below `place`."""
    folder = os.path.join(place, "prometheus")
    if not os.path.exists(os.path.join(folder, "complete")):
        shutil.rmtree(folder, ignore_errors=True)
        archive = packages.download("prometheus", os.path.join(folder, "download"))
        subprocess.run(["dpkg", "-x", archive, folder], check=True)
        with open(os.path.join(folder, "complete"), "w", encoding="utf-8"):
            pass
    return os.path.join(folder, "usr", "bin")


def get(address, path):
    """(status, text) of a page."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def hurried(rules):
    """The rules with what they wait for shortened: a test has no ten minutes. Causes and thresholds stay."""
    return re.sub(r"\[\d+m\]", "[10s]", re.sub(r"\bfor: \w+", "for: 1s", rules))


class Prometheus:
    def __init__(self, programs, directory, rules, targets):
        """`targets`: files for file_sd_configs, which need not be there yet."""
        os.makedirs(directory)
        with open(os.path.join(directory, "rules.yml"), "w", encoding="utf-8") as file:
            file.write(rules)
        config = {
            "global": {"scrape_interval": f"{SCRAPE_SECONDS * 1000:.0f}ms", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": "rowan", "file_sd_configs": [{"files": targets, "refresh_interval": "1s"}]}
            ],
        }
        with open(os.path.join(directory, "prometheus.yml"), "w", encoding="utf-8") as file:
            json.dump(config, file)  # which is YAML, too
        self.address = f"127.0.0.1:{ports.find(1)}"
        self.log = open(os.path.join(directory, "log"), "wb")
        self.child = subprocess.Popen(
            [os.path.join(programs, "prometheus"), "--config.file", os.path.join(directory, "prometheus.yml"),
             "--storage.tsdb.path", os.path.join(directory, "data"), "--web.listen-address", self.address,
             "--log.level", "warn"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        tap.wait_until(self.is_ready, 60, "Prometheus is ready")

    def is_ready(self):
        tap.check(self.child.poll() is None, "Prometheus ended")
        try:
            return get(self.address, "/-/ready")[0] == 200
        except OSError:
            return False

    def query(self, expression):
        """The series: [(labels, value)]."""
        code, text = get(self.address, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        tap.equal(code, 200, expression, text)
        return [(row["metric"], float(row["value"][1])) for row in json.loads(text)["data"]["result"]]

    def number(self, expression):
        """The one value."""
        rows = self.query(expression)
        tap.equal(len(rows), 1, expression, rows)
        return rows[0][1]

    def firing(self):
        text = get(self.address, "/api/v1/alerts")[1]
        return {one["labels"]["alertname"] for one in json.loads(text)["data"]["alerts"] if one["state"] == "firing"}

    def wait_for(self, *alerts, seconds=60):
        tap.wait_until(lambda: set(alerts) <= self.firing(), seconds,
                       lambda: f"{' '.join(sorted(set(alerts) - self.firing()))} fires (others: {self.firing()})")  # fmt: skip

    def wait_for_scrapes(self, count):
        """Until each target that answers was scraped after this moment."""
        since = time.time()
        tap.wait_until(lambda: self.query(f"count(timestamp(up) > {since} and up == 1) == {count}"), 60, f"{count} targets are scraped")

    def end(self):
        self.child.kill()
        self.child.wait()
        self.log.close()
