"""gRPC, for Cluster Autoscaler. It needs the packages of the extra ``grpc``; `extender.grpc.opening` needs none."""
