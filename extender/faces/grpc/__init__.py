"""gRPC, for Cluster Autoscaler. It needs the packages of the extra ``grpc``, but `opening` needs none."""
