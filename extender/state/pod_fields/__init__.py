"""What single fields and annotations of a pod say; `extender.state.objects.pods` reads them all."""
