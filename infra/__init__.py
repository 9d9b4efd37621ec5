"""The infrastructure: what runs where as plain data, the CDK app, and the local stack."""
