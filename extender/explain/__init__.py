"""Why a pod has no node, in words that name what exists, and what would give it one."""
