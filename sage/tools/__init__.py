"""What people run beside a study: plan, check, watch, compare, verify and archive."""
