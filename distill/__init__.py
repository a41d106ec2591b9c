"""The distillation pipeline; imported as `genprm.distill`."""
