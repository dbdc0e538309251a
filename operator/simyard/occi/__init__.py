"""OCCI, pure: the model, its renderings, and what may be asked (GFD.183 to GFD.185; OCCI 1.2: GFD.221 to GFD.229)."""
