"""Torture: breaks Poe in every way that can be arranged, and checks what it promised.

    python -m torture list
    python -m torture crash --seed 7 --count 20 --json report.json

A scenario is a row of `table.py` and a file of `faults/`. The victim is a real `poe serve`, a
process that only stores, or the storage on a file layer of `layers/`. What it acknowledged is noted
by whoever sent it, in a `Journal`, and compared with what is there afterwards, in `checker.py`:
none of that runs in the victim. Not shipped, and nothing in `poe` may import it.
"""
