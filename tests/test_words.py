"""The field's words: phrases that were retired stay out of the source and the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for place in ("src", "docs", "README.md", "CONTRIBUTING.md")
    for path in ([ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*")))
    if path.suffix in {".py", ".md", ".j2", ".css"}
]

#: A phrase, what to say instead, and a context in which it is meant.
RETIRED = [
    (r"exclud\w+ nothing", "multi-label", None),
    (r"earns? its keep", "better than the baselines", None),
    (r"told apart|can be told from", "significant", None),
    (r"cannot tell\b", "not significant, undecided", None),
    (r"nothing can be told", "not significant, undecided", None),
    (r"and that is said|, and said\b|and said to be", "the log notes it", None),
    (r"what (it|they|a run) led to", "result", None),
    (r"drawn anew", "randomly relabelled, drawn in each step", None),
    (r"\banew\b", "again, over", None),
    (r"gives? the answer away", "leaks the target", None),
    (r"at (its|their) word\b(?! vector)", "well calibrated", None),
    (r"put up with", "skip at most", None),
    (r"\bthe usual\b|\bas usual\b|\bis usual\b|'s usual\b", "the default", None),
    (r"\bgoes on (where|when|from|with|as|until)\b|\bgo on\b", "resume, continue", None),
    (r"simpler models?\b", "baselines", None),
    (r"without a model\b", "baseline", r"report[/.]"),
    (r"too sure of (it|them)sel|\btoo bright\b", "over-confident", None),
    (r"\bnot whole\b|not as it was written", "damaged, corrupt", None),
    (r"\bfurther (labelled )?sets?\b|\balso-1\b", "extra evaluation set", None),
    (r"% (certain|certainty)\b", "confidence level", None),
    (r"\bpromise[sd]?\b", "guarantee", r"report[/.]"),
    (r"what the choice is drawn from", "random seed", None),
    (r"unless asked for", "Default: …", None),
    (r"\b(is|are) not to be had\b", "cannot be loaded", None),
    (r"\bpassed over\b", "ignored", None),
    (r"\bmay mend\b|\bmends\b", "repair", None),
    (r"\band its kin\b", "and similar ones", None),
    (r"\boutcomes?\b", "result", r"papers/|calibrators/|report/|docs/evidence"),
    (r"\bthe_floating\b|\bgive_up\b|\bthat_matters\b|\bUSUAL_BEFORE\b|\babsorb\(", "the names of today", None),
]


TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}


@pytest.mark.parametrize(("phrase", "instead", "allowed"), RETIRED, ids=[entry[0] for entry in RETIRED])
def test_a_retired_phrase_is_not_used(phrase: str, instead: str, allowed: str | None) -> None:
    found = [
        f"{file}:{number}: {line.strip()[:100]}"
        for file, text in TEXTS.items()
        if re.search(phrase, text, re.IGNORECASE)
        for number, line in enumerate(text.splitlines(), 1)
        if re.search(phrase, line, re.IGNORECASE) and not (allowed and re.search(allowed, f"{file} {line}"))
    ]
    assert not found, f"say {instead!r}:\n" + "\n".join(found)


def test_the_phrases_are_found_where_they_stand() -> None:
    assert len(TEXTS) > 300
    for phrase, text in (
        (RETIRED[0][0], "labels that exclude nothing"),
        (RETIRED[12][0], "The usual network"),
        (RETIRED[13][0], "a stopped run goes on when"),
    ):
        assert re.search(phrase, text, re.IGNORECASE)
