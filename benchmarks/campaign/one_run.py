"""A small training run as a process of its own; says when it is about to begin."""

import json
import os
import sys

from training_job import Job, run

if __name__ == "__main__":
    job = Job(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    run(job, int(os.environ.get("RANK", "0")))
