"""Normal distributions of many dimensions whose covariance is diagonal, and what they take without matrices."""
