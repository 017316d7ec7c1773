"""Wrong calls of operators, public and internal, in processes of their own (operators.cpp)."""

import os
import re
import subprocess

from harness import SANITIZER, Failure

CALLS = 250  # in one process


class Operators:
    name = "operators"
    quick = 8

    def __init__(self, context):
        self.context = context

    def case(self, random, number, folder):
        context = self.context
        command = [context.operators, str(context.seed), str(number * CALLS), str(CALLS)]
        process = subprocess.run(command, capture_output=True, env=context.program.environment,
                                 timeout=60 * context.program.patience, check=False)
        out = process.stdout.decode(errors="replace")
        tried = len(re.findall(r"^\d+ ", out, re.M))
        if process.returncode == 0 and not any(mark in process.stderr for mark in SANITIZER):
            return tried
        lines = out.splitlines()
        wrong = [f"{before}: {line}" for before, line in zip(lines, lines[1:]) if line.startswith("FAILED")]
        if "done" not in lines[-1:]:
            wrong.append(f"{lines[-1] if lines else 'the start'}: the process ended with {process.returncode}: "
                         + process.stderr.decode(errors="replace")[-1500:])
        raise Failure("; ".join(wrong[:5]) + f"; run `{os.path.basename(context.operators)} {context.seed} CASE 1`")
