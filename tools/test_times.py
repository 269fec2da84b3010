"""How long each part of the tests took, as a table: python tools/test_times.py RESULTS.xml (pytest --junitxml)."""

import sys
from collections import Counter
from xml.etree import ElementTree


def times(path: str) -> tuple[Counter[str], Counter[str]]:
    """Tests and seconds by part: the folder below tests/, or the file."""
    count: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(path).iter("testcase"):
        part = "/".join(case.attrib["classname"].split(".")[:2])
        count[part] += 1
        seconds[part] += float(case.attrib["time"])
    return count, seconds


def main() -> None:
    count, seconds = times(sys.argv[1])
    print("| part | tests | seconds |\n|---|---|---|")
    for part, spent in seconds.most_common():
        print(f"| `{part}` | {count[part]} | {spent:.0f} |")
    print(f"| all | {count.total()} | {sum(seconds.values()):.0f} |")


if __name__ == "__main__":
    main()
