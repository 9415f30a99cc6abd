"""What was measured, as it is kept: one run, or several as one."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from s4d_torch.bench.goals import TargetResult, judge
from s4d_torch.bench.measure import Case, Measurement

SCHEMA = 2
# what runs that become one have in common
SAME = ("cpu", "device", "threads", "torch", "keeps_freed_memory", "d_model", "d_state", "quick")


@dataclass
class BenchReport:
    """All of one run. ``quick`` sizes say that everything runs, and nothing about speed."""

    command: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    records: list[Measurement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdicts(self) -> list[TargetResult]:
        return judge(self.records)

    def save(self, path: Path) -> None:
        content = {
            "schema": SCHEMA,
            "command": self.command,
            "machine": self.machine,
            "settings": self.settings,
            "notes": self.notes,
            "targets": [asdict(verdict) for verdict in self.verdicts],
            "records": [asdict(record) for record in self.records],
        }
        path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")

    @classmethod
    def load(cls, path: Path) -> "BenchReport":
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError:
            content = None
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            raise OSError(f"{path.name} was not written by this version of 's4d bench'")
        records = [Measurement(**{**r, "case": Case(**r["case"])}) for r in content["records"]]
        known = {name: content[name] for name in ("command", "machine", "settings", "notes")}
        return cls(records=records, **known)

    def followed_by(self, later: "BenchReport") -> "BenchReport":
        """Both in one; a work that was measured in both counts as the later one found it."""
        for name in SAME:
            one, other = ({**r.machine, **r.settings}[name] for r in (self, later))
            if one != other:
                raise ValueError(f"runs that differ in {name} cannot be one: {one}, {other}")
        again = {record.work for record in later.records}
        records = [record for record in self.records if record.work not in again]
        commits = dict.fromkeys(r.machine["commit"] or "unknown" for r in (self, later))
        return BenchReport(
            f"{self.command}; {later.command}",
            {**later.machine, "commit": ", ".join(commits)},
            later.settings,
            records + later.records,
            list(dict.fromkeys(self.notes + later.notes)),
        )
