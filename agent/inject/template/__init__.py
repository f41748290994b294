"""What injection adds to a pod: each template is a function from the pod to a partial pod."""
