"""``python -m extender.kubectl``."""

from extender.kubectl.main import main

main()
