"""Observes the tests of a Python process; lies in an image's site-packages under a random name.

A `.pth` file imports this package when an interpreter starts. It does nothing unless the listener's
socket exists. Runs in the image's own Python (3.6 or newer) and needs its standard library alone.
"""

import os

from . import settings

if os.path.exists(settings.SOCKET):
    from . import activation

    activation.activate()
