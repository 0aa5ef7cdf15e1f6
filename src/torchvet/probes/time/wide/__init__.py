"""Models in float64: what their operators take, and what they would take in float32."""
