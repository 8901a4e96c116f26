"""From raw features to the whitened features of the Gaussian processes' common inducing inputs."""
