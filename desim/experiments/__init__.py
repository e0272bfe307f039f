"""Many runs that answer a question: studies, tuning, robustness, audits, the contract."""
