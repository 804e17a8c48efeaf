"""Why a pod fits nowhere and what would change that, or where it fits."""
