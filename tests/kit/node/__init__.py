"""A node as it comes: containerd, runc, CNI plugins, the kubelet and a DRA driver, in namespaces of their own."""
