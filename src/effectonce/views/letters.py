"""What came of redriving a letter, in words."""

WHAT = {
    "would_run": "would be redriven",
    "done": "done",
    "replayed": "done already",
    "in_doubt": "in doubt",
    "failed": "failed for good",
    "gave_up": "gave up again",
    "skipped": "skipped",
    "discarded": "discarded",
    "not_tried": "not tried",
}
