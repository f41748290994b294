"""What captured traffic needs beside rules: Envoy's ::6, and TPROXY's policy rules and routes."""
