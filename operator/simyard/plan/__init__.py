"""Pure decisions: desired state + observed state + now -> what to do and what the status is. No I/O, no clock."""
