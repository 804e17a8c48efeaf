"""What single fields and annotations of a pod say; `extender.cluster.objects.pods` reads them all."""
