"""Bootstrap templates of the user's own: the part of Go's text/template that they need, and data.

    text --lexer--> tokens --parser--> tree --render, with parameters and functions--> bootstrap

Imported only in a pod that names a template. Source: bootstrap.md section 5.1; Go's package
text/template, whose words (action, pipeline, field) are used here.
"""
