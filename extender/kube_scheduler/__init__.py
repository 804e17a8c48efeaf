"""What kube-scheduler itself says of a pod and its nodes, apart from devices."""
