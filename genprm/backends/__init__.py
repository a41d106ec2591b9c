"""Engines that run a verifier model, behind one seam (`base.Backend`)."""
