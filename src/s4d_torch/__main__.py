"""``python -m s4d_torch`` is the command ``s4d``."""

import sys

from s4d_torch.cli import main

sys.exit(main())
