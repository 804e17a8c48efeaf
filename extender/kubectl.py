"""``python -m extender.kubectl`` is ``kubectl dra``."""

from extender.faces.commands.main import kubectl_dra

if __name__ == "__main__":
    kubectl_dra()
