"""What people run beside a study: plan, check, watch, compare, verify, archive and publish."""
