"""Evidence about a step from outside the judge: what the step claims, and what can be worked out without a model."""
